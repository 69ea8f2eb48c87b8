//! The dashboard in Debian's Chromium, driven over the `WebDriver` protocol, with the real program.

#[cfg(test)]
mod attach;
#[cfg(test)]
mod conflicts;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod pa11y;
#[cfg(test)]
mod person;
#[cfg(test)]
mod platform;
