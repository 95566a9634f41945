//! What may it touch? Confinement, process starts and outbound sockets.
