"""From a name to a model with its example inputs: one file per library, and none is imported before it is asked for."""
