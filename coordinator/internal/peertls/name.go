package peertls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Kind is what the owner of a certificate is to the cluster.
type Kind string

// The kinds, as they stand in the URI.
const (
	Node    Kind = "node"     // may speak Raft, and send calls on in the name of others
	Gateway Kind = "gateway"  // may send calls on in the name of others
	Client  Kind = "identity" // speaks for itself
)

const scheme = "lychgate"

// Name is whom a certificate names.
type Name struct {
	Kind Kind
	ID   string
}

// String is the URI.
func (n Name) String() string { return n.URI().String() }

// URI is how a certificate carries the name, as a subject alternative name.
func (n Name) URI() *url.URL { return &url.URL{Scheme: scheme, Host: string(n.Kind), Path: "/" + n.ID} }

// Identity is the name as rules know it: a client's own, and KIND:ID for the others.
func (n Name) Identity() lease.Identity {
	if n.Kind == Client {
		return lease.Identity(n.ID)
	}
	return lease.Identity(string(n.Kind) + ":" + n.ID)
}

// Vouches reports whether the owner is believed when it says for whom it makes a call.
func (n Name) Vouches() bool { return n.Kind == Node || n.Kind == Gateway }

// nameOf reads whom a certificate names. That it may be believed is another question.
func nameOf(cert *x509.Certificate) (Name, error) {
	var ours []*url.URL
	for _, uri := range cert.URIs {
		if uri.Scheme == scheme {
			ours = append(ours, uri)
		}
	}
	switch {
	case len(ours) > 1:
		return Name{}, fmt.Errorf("the certificate has %d %s:// names, and only one may count", len(ours), scheme)
	case len(ours) == 1:
		return parseURI(ours[0])
	case cert.Subject.CommonName == "":
		return Name{}, errors.New("the certificate names nobody: it has neither a lychgate:// URI nor a common name")
	}
	return checked(Name{Client, cert.Subject.CommonName})
}

func parseURI(uri *url.URL) (Name, error) {
	kind := Kind(uri.Host)
	id, rooted := strings.CutPrefix(uri.Path, "/")
	odd := uri.User != nil || uri.RawQuery != "" || uri.Fragment != ""
	if !rooted || odd || (kind != Node && kind != Gateway && kind != Client) {
		return Name{}, fmt.Errorf("the certificate's name %q is not lychgate://node/ID, lychgate://gateway/NAME or lychgate://identity/NAME", uri)
	}
	return checked(Name{kind, id})
}

func checked(n Name) (Name, error) {
	if n.Kind != Client {
		if _, err := lease.ParseClientID(n.ID); err != nil {
			return Name{}, fmt.Errorf("the certificate's %s %q is not a name of letters, digits and ._:@/+=-", n.Kind, n.ID)
		}
		return n, nil
	}
	id, err := lease.ParseIdentity(n.ID)
	switch {
	case err != nil:
		return Name{}, fmt.Errorf("the certificate's %w", err)
	case id == lease.Anonymous:
		return Name{}, fmt.Errorf("the certificate names %q, which is nobody", id)
	}
	return n, nil
}
