"""Gates: where clients come in. Each is a thin shell of one transport over the same sessions."""
