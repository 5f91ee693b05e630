"""Tables and figures of papers, run again: studies, their runs, and ours beside the published numbers."""
