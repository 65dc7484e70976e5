"""The status summarizer reports every copy of an object in a StatusSummary in the workspace of the object."""
