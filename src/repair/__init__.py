"""RePair: turn retrieval failures into counterfactual hard pairs."""

__version__ = "0.1.0"
