"""The forms of a judge's answer: the instruction, the schema, and a tolerant parser that never guesses."""
