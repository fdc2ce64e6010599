package postgres

import (
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// A session that may only read, since it has no ticket or only shared ones, is asked to be read-only: a courtesy that its
// client can undo. At log-in a start-up parameter does it. When tickets change later, the proxy sends SETs of its own
// behind the client's and keeps their replies to itself. They follow the transaction as the client's SET does, so a
// rollback takes back both.

// askedToRead is what the log says of the courtesy.
const askedToRead = "session is asked to be read-only: its client can undo it, guarded tables refuse its writes in any case"

// reading is whether a session ought to be read-only, in the running transaction and in those after it.
type reading struct{ now, later bool }

func (r *relay) reading() reading {
	only := func(claims []fencestore.Claim) bool {
		plan := gate.Plan{Access: r.without, Claims: claims}
		if len(claims) > 0 {
			plan.Access = gate.Fenced
		}
		return plan.ReadOnly()
	}
	return reading{now: only(r.fences.inForce()), later: only(r.fences.afterCommit())}
}

// settings lists what takes a session from one to the other. What the client has set itself is left alone where
// the tickets do not speak against it. No statement of these warns or takes a snapshot.
func (to reading) settings(from reading, local bool) []string {
	var list []string
	change := func(name string, from, to bool) {
		switch {
		case to:
			list = append(list, "SET "+name+" = on")
		case from:
			list = append(list, "SET "+name+" = off")
		}
	}
	if !local {
		change("default_transaction_read_only", from.later, to.later)
	}
	change("transaction_read_only", from.now, to.now)
	return list
}

// ownName is that of the proxy's statements and portals.
const ownName = "lychgate_read_only"

// setOwn puts settings behind a message of the client's, in its protocol: a simple query would end the batch of an
// extended one. Nothing is outstanding, so that there is room for the replies.
func (r *relay) setOwn(b *burst, kind track.Kind, settings []string) {
	for _, text := range settings {
		if kind == track.Query {
			r.own(b, track.Query, 'Q', text+"\x00")
			continue
		}
		const name = ownName + "\x00"
		r.own(b, track.Parse, 'P', name+text+"\x00"+string(noTypes))
		r.own(b, track.Bind, 'B', name+name+"\x00\x00\x00\x00\x00\x00") // no formats, no parameters, no formats of results
		r.own(b, track.Execute, 'E', name+"\x00\x00\x00\x00")
		r.own(b, track.Close, 'C', "P"+name)
		r.own(b, track.Close, 'C', "S"+name)
	}
}

// own puts a message of the proxy's whose reply the client does not see.
func (r *relay) own(b *burst, kind track.Kind, typ byte, body string) {
	r.talk.Send(track.Sent{Kind: kind, Pure: true, Hidden: true})
	b.putMessage(typ, []byte(body))
}
