package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// bindingLimit bounds an answer of /bindings.
const bindingLimit = 1000

// binding is one row of /bindings. 64-bit numbers are decimal strings, as everywhere in this product's JSON.
type binding struct {
	ID        uint64    `json:"id,string"` // of the connection, as the console's CUT takes it
	Listener  string    `json:"listener"`
	Adapter   string    `json:"adapter"`
	Remote    string    `json:"remote"` // network address of the client
	Cluster   string    `json:"cluster"`
	Resource  string    `json:"resource"`
	Token     uint64    `json:"token,string"`
	Mode      string    `json:"mode"`
	LeaseHash string    `json:"leaseHash,omitempty"`
	Session   string    `json:"session"` // as the store names it
	Since     time.Time `json:"since"`
}

type bindingList struct {
	Bindings []binding `json:"bindings"`
	Total    int       `json:"total"` // more than are listed when the list was cut
}

// serveBindings answers with the bindings of ?resource=, or of all, at most ?limit= of them.
func serveBindings(w http.ResponseWriter, r *http.Request, views []gate.BindingView) {
	query := r.URL.Query()
	limit := bindingLimit
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > bindingLimit {
			plain(w, http.StatusBadRequest, "limit is not a number from 1 to "+strconv.Itoa(bindingLimit))
			return
		}
		limit = n
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(listBindings(views, query.Get("resource"), limit)) // only the client's connection can fail
}

func listBindings(views []gate.BindingView, resource string, limit int) bindingList {
	list := bindingList{Bindings: []binding{}}
	for _, v := range views {
		if resource != "" && v.Resource != resource {
			continue
		}
		list.Total++
		if len(list.Bindings) < limit {
			list.Bindings = append(list.Bindings, binding(v))
		}
	}
	return list
}
