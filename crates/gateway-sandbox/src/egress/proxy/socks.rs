//! SOCKS 5 (RFC 1928): the command CONNECT, without authentication.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::time::timeout;

use super::idle::Watched;
use super::{HEAD_TIME, Proxy, Refused};
use crate::egress::ConnectError;

/// The first byte of every message.
pub(super) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xFF;
const CONNECT: u8 = 1;

/// The replies of RFC 1928, section 6.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Serves one connection: a greeting, one request, and then the bytes of both sides.
pub(super) async fn serve(proxy: &Proxy, mut stream: Watched) -> io::Result<()> {
    let asked = timeout(HEAD_TIME, read_request(&mut stream)).await??;
    let (host, port) = match asked {
        Ok(target) => target,
        Err(refusal) => return reply(&mut stream, refusal).await,
    };
    match proxy.connect(&host, port).await {
        Ok(mut peer) => {
            reply(&mut stream, Reply::Succeeded).await?;
            copy_bidirectional(&mut stream, &mut peer).await.map(drop)
        }
        Err(refused) => reply(&mut stream, Reply::to(&refused)).await,
    }
}

/// Reads whom the client wants to reach; the inner error is what it is to be told.
async fn read_request(stream: &mut Watched) -> io::Result<Result<(String, u16), Reply>> {
    let [_version, count] = read(stream).await?;
    let mut methods = vec![0; count.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(io::Error::other("the client wants to authenticate itself"));
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _reserved, kind] = read(stream).await?;
    if version != VERSION {
        return Err(io::Error::other("the request is not of SOCKS 5"));
    }
    let host = match kind {
        1 => Ipv4Addr::from(read::<4>(stream).await?).to_string(),
        3 => read_name(stream).await?,
        4 => format!("[{}]", Ipv6Addr::from(read::<16>(stream).await?)),
        _ => return Ok(Err(Reply::AddressNotSupported)),
    };
    let port = u16::from_be_bytes(read(stream).await?);
    Ok(if command == CONNECT { Ok((host, port)) } else { Err(Reply::CommandNotSupported) })
}

async fn read<const COUNT: usize>(stream: &mut Watched) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn read_name(stream: &mut Watched) -> io::Result<String> {
    let [length] = read(stream).await?;
    let mut name = vec![0; length.into()];
    stream.read_exact(&mut name).await?;
    let name = String::from_utf8_lossy(&name).into_owned();
    // Clients hand over an IPv6 address as they got it.
    Ok(if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name })
}

async fn reply(stream: &mut Watched, reply: Reply) -> io::Result<()> {
    // The address that the proxy connects from is nobody's business.
    stream.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

impl Reply {
    fn to(refused: &Refused) -> Self {
        match refused {
            denied if denied.is_denied() => Self::NotAllowed,
            Refused::Connect(ConnectError::Slow { .. }) => Self::TimedOut,
            Refused::Connect(ConnectError::Unreachable { .. }) => Self::ConnectionRefused,
            Refused::Host(_) | Refused::Connect(_) => Self::HostUnreachable,
        }
    }
}
