package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir/client"
)

// A call that waits for a key ends with its own context, even if KeyFunc runs for another call.
func TestKeyFuncContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: &stored{}, KeyFunc: func(ctx context.Context) (client.Key, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}})
		patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go c.Stream(patient, "x")
		synctest.Wait() // until the first call is in KeyFunc
		start := time.Now()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Stream(hasty, "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("the call ended after %v: %v; want its deadline after 1s", time.Since(start), err)
		}
		<-patient.Done()
		synctest.Wait()
	})
}

// A publish whose request was never sent has a known outcome.
func TestKnownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, o := range map[string]client.Options{
			"no key": {KeyFunc: func(context.Context) (client.Key, error) { return "", errors.New("no key") }, Transport: &stored{}},
			"the certificate is not trusted": {Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
			})},
		} {
			o.URL = "https://weir.example"
			_, err := newClient(t, o).Publish(t.Context(), "x", client.Events(1))
			if _, unknown := errors.AsType[*client.UnknownError](err); unknown || err == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
