// Package api serves the public API of a coordinator node: the gRPC services of package lockpb, the same over
// HTTP, and what surrounds them (metrics, health, the audit log).
//
// A call goes through these steps, each in a file of its own: its input is checked (parse.go); it is sent to the
// leader, and again to the next one when the leader changes (route.go, peers.go); the leader proposes it and, for an
// acquire that waits, keeps it hanging (locks.go, acquire.go); the result of the log entry becomes an answer
// (answer.go) or a refusal (reason.go).
package api
