package lease

import "strings"

// MaxIdentity bounds an identity, in bytes.
const MaxIdentity = 128

// Anonymous is the identity of every caller where nobody is authenticated. No certificate and no token may name it.
const Anonymous Identity = "anonymous"

// ParseIdentity checks an identity that a certificate, a token file or another node names: 1 to MaxIdentity bytes of
// the characters of a resource name, either NAME or TENANT:NAME. The tenant is what stands before the first ":".
func ParseIdentity(s string) (Identity, error) {
	if err := checkName("identity", s, MaxIdentity); err != nil {
		return "", err
	}
	tenant, name, divided := strings.Cut(s, ":")
	switch {
	case divided && tenant == "":
		return "", &NameError{"identity", "has no tenant before its \":\""}
	case divided && name == "":
		return "", &NameError{"identity", "has no name behind its \":\""}
	}
	return Identity(s), nil
}

// Tenant is the part of the identity before its first ":", and empty if it has none.
func (id Identity) Tenant() string {
	tenant, _, divided := strings.Cut(string(id), ":")
	if !divided {
		return ""
	}
	return tenant
}
