"""Embedding models and rerankers: trained, saved and used (`minibert embed`, `search`, `rerank`, `finetune embed`, `finetune rerank`)."""
