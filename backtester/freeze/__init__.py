"""From vendors to a snapshot."""
