"""Text and images to token ids, patches and positions."""
