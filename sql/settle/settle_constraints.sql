-- Checks what is deferred to the end of the transaction now: a COMMIT that is refused takes the claim's locks with it.
set constraints all immediate
