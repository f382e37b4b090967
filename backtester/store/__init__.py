"""The results database: its tables and views, how runs get into it, and how it is queried."""
