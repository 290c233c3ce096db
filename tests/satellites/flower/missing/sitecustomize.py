"""A node whose Python cannot import tensorpull: it is in the environment of its SuperNode alone."""
import sys

sys.modules["tensorpull"] = None
