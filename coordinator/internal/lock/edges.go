package lock

import "github.com/lychgate/lychgate/coordinator/lease"

// Party is who waits or is waited for.
type Party struct {
	Owner   Owner
	Client  lease.ClientID
	Request lease.RequestID
}

// Edge says that an owner waits for another one, on one resource.
type Edge struct {
	Waiter Party
	Holder Party
	Lease  lease.ID // that the holder has; zero if it waits itself, ahead of the waiter
}
