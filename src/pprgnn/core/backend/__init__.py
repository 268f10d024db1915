"""How recursions are computed: plain torch operations or the fused CPU kernel, and the memory they work in."""
