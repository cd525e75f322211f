package enginetest

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/engine"
)

var listCases = []testCase{
	{"list with prefix, afterKey and limit", []string{
		"List returns up to limit documents whose key begins with prefix and is greater than afterKey, in order of keys.",
	}, listAll},
	{"list in pages", []string{
		"List returns up to limit documents whose key begins with prefix and is greater than afterKey, in order of keys.",
	}, listPages},
}

func (s *store) list(prefix, after string, limit int) []engine.Document {
	s.Helper()
	docs, err := s.List(s.ctx, prefix, after, limit)
	if err != nil {
		s.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	return docs
}

// listing computes the keys that List should return. The parameter keys holds all keys of the
// store, sorted.
func listing(keys []string, prefix, after string, limit int) []string {
	var want []string
	for _, key := range keys {
		if len(want) < limit && strings.HasPrefix(key, prefix) && key > after {
			want = append(want, key)
		}
	}
	return want
}

func names(docs []engine.Document) []string {
	var keys []string
	for _, doc := range docs {
		keys = append(keys, doc.Key)
	}
	return keys
}

func listAll(s *store) {
	if got := s.list("", "", 10); len(got) != 0 {
		s.Fatalf("a fresh store has %q", names(got))
	}
	docs := map[string]engine.Document{}
	for i := range keys { // creates the documents in an unsorted order
		key := keys[i*7%len(keys)]
		docs[key] = s.create(key, "of "+key)
	}
	check := func(keys []string) {
		s.Helper()
		for _, prefix := range []string{"", "a", "a/", "Z", "z", "Ω", "日", "x", "\xe6"} {
			for _, after := range []string{"", "/", "a", "a.", "a/b", "zzz", "日本語", "\xff"} {
				for _, limit := range []int{0, 1, 3, 1000} {
					got := s.list(prefix, after, limit)
					if want := listing(keys, prefix, after, limit); !slices.Equal(names(got), want) {
						s.Fatalf("list of at most %d keys with the prefix %q after %q: %q, want %q", limit, prefix, after, names(got), want)
					}
					for _, doc := range got {
						s.sameDocument(doc, docs[doc.Key])
					}
				}
			}
		}
	}
	check(keys)
	docs["a"] = s.update(docs["a"], "changed")
	s.delete("a/b", 0)
	rest := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "a/b" })
	check(rest)
	s.reopen()
	check(rest)
}

func listPages(s *store) {
	const n = 250
	s.parallel(n, func(i int) {
		for _, kind := range []string{"a/", "b/", "c/"} {
			if _, err := s.Create(s.ctx, fmt.Sprintf("%s%03d", kind, i), nil); err != nil {
				s.Errorf("create: %v", err)
			}
		}
	})
	for _, size := range []int{1, 7, 100, n, n + 1} {
		seen := 0
		for after := ""; ; {
			page := s.list("b/", after, size)
			for _, doc := range page {
				if want := fmt.Sprintf("b/%03d", seen); doc.Key != want {
					s.Fatalf("got %q, want %q next", doc.Key, want)
				}
				seen++
				after = doc.Key
			}
			if len(page) < size {
				break
			}
		}
		if seen != n {
			s.Fatalf("found %d documents in pages of %d", seen, size)
		}
	}
}
