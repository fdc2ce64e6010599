package postgres_test

import "testing"

// What the tests say of a session holds whichever driver carries it. By themselves they run in the event loop, as far as
// their connections are bare sockets; here each session has two goroutines.
func TestWithTwoGoroutinesASession(t *testing.T) {
	eventLoops = -1
	t.Cleanup(func() { eventLoops = 0 })
	for name, test := range map[string]func(*testing.T){
		"same messages":            TestSameMessagesAsWithoutTheProxy,
		"same at random":           TestSameMessagesAtRandom,
		"refusals":                 TestRefusalsLookLikeTheServersOwnErrors,
		"bad messages":             TestBadMessages,
		"barred names":             TestNamesOfStatementsDoNotOutliveTheTicket,
		"prepared ends":            TestPreparedEndsOfTransactionsWithATicketEach,
		"ticket behind BEGIN":      TestTicketBehindBeginInOneText,
		"ticket in a copy":         TestTicketInTheMiddleOfACopy,
		"failed batch":             TestCloseInAFailedBatchIsNotBelieved,
		"set in pipelines":         TestSetTicketInPipelines,
		"set":                      TestSetTicket,
		"set refused":              TestSetTicketRefusedLeavesTheSession,
		"shown while it is left":   TestTicketThatIsShownAgainWhileItIsBeingLeft,
		"other mentions":           TestOtherMentionsNeverReachTheServer,
		"courtesy":                 TestCourtesyFollowsSetTicket,
		"courtesy unseen":          TestCourtesyIsNotSeen,
		"takeover":                 TestTakeoverFromAnOpenTransaction,
		"takeover while it runs":   TestTakeoverWhileAStatementRuns,
		"takeover from a copy":     TestTakeoverFromCopyIn,
		"takeover from the silent": TestTakeoverFromAClientThatDoesNotRead,
		"local takeover":           TestLocalTakeoverIsExplainedAfterWhatTheServerHadSaid,
		"end of a lease":           TestEndLease,
		"drain":                    TestDrainFinishesTransactions,
		"bounded drain":            TestDrainIsBounded,
		"promotion":                TestPromotionEndsTheSession,
		"client vanishes":          TestClientVanishesAtEveryByte,
		"server vanishes":          TestServerVanishesAtEveryByte,
		"pgbench":                  TestUnmodifiedPgbench,
		"limit":                    TestConnectionLimit,
		"replication":              TestTakeoverFromLogicalReplication,
		"end of a stream":          TestStreamEndsAndTheSessionGoesOn,
		"drained stream":           TestDrainEndsAStream,
		"pg_recvlogical":           TestUnmodifiedPgRecvlogical,
		"pg_receivewal":            TestUnmodifiedPgReceivewal,
		"load balancer":            TestClientsBehindALoadBalancer,
		"end of a tenure":          TestSessionsEndWithTheTenureOfTheirServer,
	} {
		t.Run(name, test)
	}
}
