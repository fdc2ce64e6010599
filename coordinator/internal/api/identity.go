package api

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
	"github.com/lychgate/lychgate/coordinator/internal/sparse"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Security says how callers are known and what they may do. The zero value is a node on a network of friends: everybody
// is anonymous and may do everything, and whoever says that it is a node is believed.
type Security struct {
	Keys   *peertls.Keys  // nil: plain text
	Tokens *access.Tokens // nil: there are none
	Rules  *access.Rules  // nil: everything is allowed
}

// caller is who makes a call, as the node that took it from the client has found out.
type caller struct {
	identity lease.Identity // empty: nobody, and fault says why
	sender   peertls.Name   // of the certificate of whoever sent the call, a node for one that is sent on
	// self marks a node's own call: it has all of the state anyway, and may do what it needs.
	self      bool
	forwarded bool
	token     string // that it showed; never logged
	fault     *refusal
}

type callerKey struct{}

func withCaller(ctx context.Context, c *caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) (*caller, bool) {
	c, ok := ctx.Value(callerKey{}).(*caller)
	return c, ok
}

// identityKey says, in the metadata of a call that a node sends on, for whom it does so.
const identityKey = "lychgate-identity"

// identity is who calls: whom a token stands for, else whom a certificate names, and for a call that was sent on whom
// the node that took it says. It is asked for here and nowhere else. It is empty, and owns nothing, where callers have to
// say who they are and this one has not.
func (s *Server) identity(ctx context.Context) lease.Identity {
	c, known := callerOf(ctx)
	if s.callers != nil && (!known || !c.forwarded) {
		return s.callers(ctx)
	}
	switch {
	case known:
		return c.identity
	case s.config.Security.Rules == nil:
		return lease.Anonymous
	}
	return ""
}

// asSelf is the context of a call that this node makes to another on its own account.
func (s *Server) asSelf(ctx context.Context) context.Context {
	self := peertls.Name{Kind: peertls.Node, ID: s.config.Node}
	return withCaller(ctx, &caller{identity: self.Identity(), sender: self, self: true})
}

// introduced adds to a call that is sent on for whom that is done.
func (s *Server) introduced(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, identityKey, string(s.identity(ctx)))
}

// credentials are what came with a call.
type credentials struct {
	sender    peertls.Name // of the certificate, if one was shown and is believed
	badCert   error        // why it is not
	bearer    []string     // the Authorization headers
	forwarded bool
	behalf    []string // for whom, of a call that is sent on
	from      string   // address
}

// authenticate finds out who calls. What is wrong is the caller's fault, which counts where it matters who calls.
func (s *Server) authenticate(with credentials) *caller {
	c := &caller{sender: with.sender, forwarded: with.forwarded}
	switch {
	case with.badCert != nil:
		c.fault = s.unauthenticated("certificate", with, "the certificate is not believed: "+with.badCert.Error())
	case with.forwarded:
		s.vouched(c, with)
	case len(with.bearer) > 0:
		s.byToken(c, with)
	case with.sender != peertls.Name{}:
		c.identity = with.sender.Identity()
	case s.config.Security.Rules == nil:
		c.identity = lease.Anonymous
	default:
		c.fault = s.unauthenticated("nothing", with, "the call does not say who makes it")
	}
	return c
}

// vouched takes the word of a node, or of a gateway, for whom it sends a call on. Without TLS everybody is believed.
func (s *Server) vouched(c *caller, with credentials) {
	if s.config.Security.Keys != nil && !s.believed(with.sender) {
		c.fault = s.refuseCaller(lockpb.Reason_PERMISSION_DENIED, "forwarded", with,
			"only the nodes and gateways of this cluster may send calls on")
		c.fault.detail.Field = forwardedKey // so that the node that sent it can say that it is the reason
		return
	}
	if len(with.behalf) == 0 || with.behalf[0] == "" {
		if s.config.Security.Rules == nil {
			c.identity = lease.Anonymous
			return
		}
		c.fault = s.unauthenticated("forwarded", with, "the call was sent on without saying for whom")
		return
	}
	id, err := lease.ParseIdentity(with.behalf[0])
	switch {
	case err != nil:
		c.fault = s.unauthenticated("forwarded", with, "the call was sent on for nobody: "+err.Error())
	case id == lease.Anonymous && s.config.Security.Rules != nil:
		c.fault = s.unauthenticated("forwarded", with, "the call was sent on by a node that does not ask who calls")
	default:
		c.identity = id
		c.self = with.sender.Kind == peertls.Node && id == with.sender.Identity()
	}
}

// believed reports whether a certificate's owner may speak for others: a member, or a gateway.
func (s *Server) believed(sender peertls.Name) bool {
	return sender.Kind == peertls.Gateway || (sender.Kind == peertls.Node && s.member(sender.ID))
}

func (s *Server) byToken(c *caller, with credentials) {
	scheme, token, _ := strings.Cut(with.bearer[0], " ")
	switch tokens := s.config.Security.Tokens; {
	case tokens == nil && s.config.Security.Rules == nil: // as if it had not been shown: nobody is asked
		c.identity = lease.Anonymous
	case len(with.bearer) > 1 || !strings.EqualFold(scheme, "Bearer"):
		c.fault = s.unauthenticated("token", with, "the Authorization is not of the form Bearer TOKEN")
	case tokens == nil:
		c.fault = s.unauthenticated("token", with, "this cluster knows no tokens")
	default:
		c.token = strings.TrimSpace(token)
		id, ok := tokens.Whose(c.token)
		if !ok {
			c.fault = s.unauthenticated("token", with, "the token is not known")
		}
		c.identity = id
	}
}

func (s *Server) unauthenticated(how string, with credentials, message string) *refusal {
	return s.refuseCaller(lockpb.Reason_UNAUTHENTICATED, how, with, message)
}

func (s *Server) refuseCaller(reason lockpb.Reason, how string, with credentials, message string) *refusal {
	s.watchman.failed.WithLabelValues(how).Inc()
	s.watchman.log.Warn("caller refused", "from", with.from, "certificate", nameOrNone(with.sender), "reason", message)
	return refuse(reason, message)
}

func nameOrNone(n peertls.Name) string {
	if n == (peertls.Name{}) {
		return "none"
	}
	return n.String()
}

// watchman counts and logs who was not let in. How often that happens is up to strangers, so the log is bounded.
type watchman struct {
	log    *sparse.Log
	failed *prometheus.CounterVec
	denied *prometheus.CounterVec
}

func newWatchman(registerer prometheus.Registerer, logger *slog.Logger) *watchman {
	w := &watchman{
		log:    sparse.New(logger, 10, time.Second),
		failed: counterVec("authentications_failed_total", "Calls whose caller could not be told, by what it showed.", "shown"),
		denied: counterVec("access_denied_total", "Calls refused because the caller has no right to them.", "right"),
	}
	registerer.MustRegister(w.failed, w.denied)
	for _, how := range []string{"nothing", "token", "certificate", "forwarded"} {
		w.failed.WithLabelValues(how)
	}
	for _, right := range access.Rights() {
		w.denied.WithLabelValues(string(right))
	}
	return w
}

// grpcCaller is who makes a call that came over gRPC.
func (s *Server) grpcCaller(ctx context.Context) *caller {
	with := credentials{
		forwarded: forwarded(ctx),
		bearer:    metadata.ValueFromIncomingContext(ctx, "authorization"),
		behalf:    metadata.ValueFromIncomingContext(ctx, identityKey),
	}
	if said := metadata.ValueFromIncomingContext(ctx, forwardedKey); s.config.Security.Keys == nil && len(said) > 0 {
		with.sender = peertls.Name{Kind: peertls.Node, ID: said[0]} // without TLS everybody is believed
	}
	if p, ok := peer.FromContext(ctx); ok {
		with.from = p.Addr.String()
		if c, ok := p.AuthInfo.(connection); ok {
			if info, ok := c.AuthInfo.(peertls.AuthInfo); ok {
				with.sender = info.Name
			}
		}
	}
	return s.authenticate(with)
}

// admit finds out who makes a call of a method, and whether that one may make any. What it asks for is for the method.
func (s *Server) admit(ctx context.Context, method string) (context.Context, *refusal) {
	c, known := callerOf(ctx)
	if !known {
		c = s.grpcCaller(ctx)
		ctx = withCaller(ctx, c)
	}
	return ctx, s.demand(ctx, c, method)
}

func (s *Server) admitUnary(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	ctx, leave, refused := s.enterBy(ctx, info.FullMethod)
	if refused != nil {
		return nil, refused
	}
	defer leave()
	return next(ctx, in)
}

// enterBy admits a call and counts it in on its connection.
func (s *Server) enterBy(ctx context.Context, method string) (_ context.Context, leave func(), refused *refusal) {
	ctx, refused = s.admit(ctx, method)
	if refused != nil {
		return nil, nil, refused
	}
	c, _ := callerOf(ctx)
	leave, refused = s.hold(ctx, c, method)
	return ctx, leave, refused
}

func (s *Server) admitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, leave, refused := s.enterBy(stream.Context(), info.FullMethod)
	if refused != nil {
		return refused
	}
	defer leave()
	ctx, overlook := s.oversee(ctx, info.FullMethod)
	defer overlook()
	serve := func(stream grpc.ServerStream) error {
		return revoked(ctx, next(srv, &admitted{stream, ctx}))
	}
	if info.IsClientStream {
		return serve(stream) // a session looks after this by itself
	}
	return s.unstalled(stream, serve)
}

// admitted is a stream whose caller is known.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

// RecvMsg implements grpc.ServerStream.
func (a *admitted) RecvMsg(message any) error {
	err := a.ServerStream.RecvMsg(message)
	arrived(a.ctx)
	return err
}

// Context implements grpc.ServerStream.
func (a *admitted) Context() context.Context { return a.ctx }

// denied is the refusal of a caller without a right.
func (s *Server) deniedTo(c lease.Identity, right access.Right, what string) *refusal {
	s.watchman.denied.WithLabelValues(string(right)).Inc()
	return refuse(lockpb.Reason_PERMISSION_DENIED, fmt.Sprintf("%s has no right to %s", c, what))
}

// dialSecurity is how connections to a node are secured.
type dialSecurity func(node string) grpccreds.TransportCredentials

// dial is for connections to other nodes.
func (s Security) dial() dialSecurity {
	if s.Keys == nil {
		return func(string) grpccreds.TransportCredentials { return insecure.NewCredentials() }
	}
	return s.Keys.Dial
}

// serve is for the gRPC port.
func (s Security) serve() grpccreds.TransportCredentials {
	if s.Keys == nil {
		return insecure.NewCredentials()
	}
	return s.Keys.Serve()
}
