"""Embedding models and rerankers: used (`minibert embed`, `search`, `rerank`), trained and
measured."""
