"""How disentangled codes are: the published metrics, on arrays or on a world's whole grid."""
