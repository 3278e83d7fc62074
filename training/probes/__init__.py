"""What the vectors know: `minibert probe`."""
