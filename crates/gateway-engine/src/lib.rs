//! ToolGateway: the catalogue, the line of a call, and the ports that adapters implement.
