//! The orders-service over HTTP: requests of the gateway and of operators, faults and crashes.

#[cfg(test)]
mod crash;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod erasures;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod identities;
#[cfg(test)]
mod internal;
#[cfg(test)]
mod list;
#[cfg(test)]
mod pets;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod power;
#[cfg(test)]
mod races;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod scopes;
#[cfg(test)]
mod slow;
#[cfg(test)]
mod trusted_keys;
#[cfg(test)]
mod v1;
#[cfg(test)]
mod v2;
#[cfg(test)]
mod versions;
#[cfg(test)]
mod world;
