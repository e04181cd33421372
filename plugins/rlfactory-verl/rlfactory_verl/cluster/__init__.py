"""Ray and the processes of a run: start, watch and end them."""
