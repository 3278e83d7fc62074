"""From files and tables to pairs of texts, negatives, and passages."""
