package postgres

import "testing"

// A file of verifiers is taken whole or not at all, and who stands in it can be asked for.
func FuzzVerifierFile(f *testing.F) {
	const verifier = `SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=`
	for _, text := range []string{
		"", "# nobody\n; neither\n", `"app" "` + verifier + `"`, `"a""b" "` + verifier + `"` + "\n" + `"c" "` + verifier + `"`,
		`"app" "` + verifier + `"` + "\n" + `"app" "` + verifier + `"`, `"app" "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"`, `"app" "secret`, `"" ""`, "\"a\" \"b\" \"c\"\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v Verifiers
		if err := v.parse(text); err != nil {
			if v.users != nil || v.mock != nil {
				t.Errorf("refused (%v), and yet there are %d users", err, len(v.users))
			}
			return
		}
		if len(v.users) == 0 || len(v.mock) == 0 {
			t.Error("accepted without a user")
		}
		for user, verifier := range v.users {
			if user == "" || verifier.Iterations <= 0 || len(verifier.StoredKey) == 0 || len(verifier.ServerKey) == 0 {
				t.Errorf("user %q has %+v", user, verifier)
			}
		}
	})
}
