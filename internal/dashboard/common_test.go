package dashboard

import "testing"

// The passwords that attackers guess first are refused, even with capitals, digits or signs added.
// Other passwords are accepted.
func TestCommonPasswords(t *testing.T) {
	for _, password := range []string{
		"password", "PASSWORD", "Password1", "password123", "P@ssw0rd", "Passw0rd!2024", "p455w0rd", "12345678", "123456789", "1234567890", "87654321", "11111111",
		"12341234", "abcabcab", "00000000", "qwertyuiop", "qwerty123", "1qaz2wsx", "1q2w3e4r", "asdfghjkl", "abcdefgh", "zyxwvuts", "iloveyou", "iloveyou2",
		"admin123", "Administrator", "adminadmin1", "letmein1", "welcome1", "Welcome2024!", "changeme", "trustno1", "football", "baseball1", "superman", "sunshine!",
		"princess", "dragon12", "monkey99", "starwars", "michael1", "jennifer", "qazwsxedc", "q1w2e3r4", "20240101", "19841231", "weirweir", "Dashboard1", "Summer2026!",
	} {
		if !isCommon(password) || CheckPassword(password) == nil {
			t.Errorf("%q is accepted", password)
		}
	}
	for _, password := range []string{
		"correct horse", "another one", "new password", "tr0ub4dor&3x", "lmao-nope-vase-tin", "K9!x2#vQ", "bafegudo", "8302 5519 7746", "éàüöñøçß", "passwordless-weir-7",
		"monkeys eat dragons", "GaX93hwqPzKd01mLuRtb",
	} {
		if isCommon(password) {
			t.Errorf("%q is refused", password)
		}
	}
}
