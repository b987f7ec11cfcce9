"""The search for the best options of a format on a GPU."""
