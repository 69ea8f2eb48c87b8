//! The control plane over HTTP: requests in, answers and the change stream out, in a world of our own.

mod certificates;
mod domains;
mod feed;
mod http;
mod keys;
mod projects;
mod redirects;
mod removal;
mod verification;
mod world;
