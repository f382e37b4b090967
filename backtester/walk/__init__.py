"""Walking the pipeline over dates: the plan, one cell, who works, and the loop."""
