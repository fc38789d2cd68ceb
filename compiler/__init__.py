"""From a model to an artifact: the stages around the graph passes."""
