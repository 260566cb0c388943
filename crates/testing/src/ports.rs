use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port: below the ports that the system gives to outgoing connections, and away from those of the servers that scripts start.
const FIRST: u16 = 10_000;
const COUNT: u16 = 5_000;

/// Returns a free address of the loopback interface. The address stays free while its server is started again, because the system gives
/// its port to no connection.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins at another port, because several may look for one at once.
    let own = u16::try_from(process::id() * 37 % u32::from(COUNT)).expect("a small number");
    for _ in 0..COUNT {
        let port = FIRST + (own + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port from {FIRST} on is free");
}
