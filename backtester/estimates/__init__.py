"""What a run is going to ask, and what that takes at most, before anything is asked."""
