package dashboard

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// isCommon reports whether a password is among the first that an attacker tries. These are words of
// the list common.txt, neighbouring keys of the keyboard, and repetitions of a few characters. A
// word may occur once or twice, with capitals, and with digits and signs around it or in place of
// letters. The list holds the roots of the most frequent passwords of published leaks. It can be
// short, because the dashboard allows only 1,000 guesses per five minutes.
func isCommon(password string) bool {
	lower := strings.ToLower(password)
	different := map[rune]bool{}
	for _, r := range lower {
		different[r] = true
	}
	if len(different) < fewCharacters {
		return true
	}
	for _, row := range keysInARow {
		if strings.Contains(row, lower) || strings.Contains(row, reversed(lower)) {
			return true
		}
	}
	root := strings.TrimFunc(lower, notLetter)
	if root == "" {
		return len(lower) < allDigits
	}
	for _, word := range []string{root, spelled.Replace(root), strings.TrimFunc(spelled.Replace(lower), notLetter)} {
		half := word[:len(word)/2]
		if commonRoots()[word] || half+half == word && commonRoots()[half] {
			return true
		}
	}
	return false
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

const (
	fewCharacters = 5  // a password with fewer different characters counts as repetitive
	allDigits     = 12 // minimum length of a password without letters: shorter ones are often dates or telephone numbers
)

// keysInARow are rows and columns of the keyboard, the digits and the alphabet. Some strings repeat
// their start at the end, so that they also contain sequences that wrap around.
var keysInARow = []string{
	"01234567890123456789012345678901234567890", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
	"qwertyuiopasdfghjklzxcvbnmqwertyuiop", "1234567890qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnmqwertzuiop",
	"azertyuiopqsdfghjklmwxcvbnazertyuiop", "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p", "qazwsxedcrfvtgbyhnujmikolp",
	"q1w2e3r4t5y6u7i8o9p0", "1q2w3e4r5t6y7u8i9o0p", "a1b2c3d4e5f6g7h8i9j0", "1a2b3c4d5e6f7g8h9i0j", "qweasdzxcrtyfghvbn", "123qweasdzxc",
}

// spelled undoes common substitutions: it replaces digits and signs by the letters that they stand
// for.
var spelled = strings.NewReplacer("@", "a", "4", "a", "3", "e", "1", "i", "!", "i", "0", "o", "$", "s", "5", "s", "7", "t")

//go:embed common.txt
var commonText string

// commonRoots returns the words of common.txt.
var commonRoots = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(commonText) {
		words[w] = true
	}
	return words
})

func reversed(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}
