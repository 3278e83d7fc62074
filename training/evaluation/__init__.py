"""Is it any good: metrics, what guessing reaches, and pictures."""
