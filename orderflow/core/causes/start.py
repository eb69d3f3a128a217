"""How a service that does not run is started on this machine: one wording for all of them."""

START_IT = "start it (`orderflow up`: the whole shop here; `orderflow stack up`: only the parts)"
