"""Publishing: `minibert push`, what it checks, and what makes every saved folder a loadable Hub
repository."""
