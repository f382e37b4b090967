"""What a decision earned, and the lessons from it, in simulated time."""
