// Package coordinator is the facade of a coordinator node: what it is configured with, and the [Node] that runs.
//
// A node keeps one replica of the lock machine, takes part in its Raft group, and serves the public API
// (package lockpb) over gRPC and HTTP. Any node takes any call. See DESIGN.md beside this file.
package coordinator
