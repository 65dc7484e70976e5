"""Remember what an API said, and hear of what changes."""
