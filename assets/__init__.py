"""Small models that ship with Ropewalk."""
