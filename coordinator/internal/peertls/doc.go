// Package peertls says who is at the other end of a connection, by certificates: the nodes of a cluster to one another,
// and clients to the nodes.
//
// A certificate names its owner in one URI: lychgate://node/ID for a node, lychgate://gateway/NAME for a gateway,
// lychgate://identity/TENANT:NAME for a client. A client's certificate without such a URI is called by its common name.
// Nodes and gateways are believed only under the nodes' own CA. Everything is TLS 1.3.
package peertls
