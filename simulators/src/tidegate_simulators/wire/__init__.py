"""HTTP/1.1 as simulators speak it: fast, strict about what comes in, and able to spoil what goes out."""
