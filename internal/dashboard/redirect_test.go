package dashboard

import "testing"

// After a sign-in, a browser is only redirected to a page of the dashboard.
func TestLocal(t *testing.T) {
	for in, want := range map[string]string{
		"": "/dashboard", "https://evil.example": "/dashboard", "//evil.example": "/dashboard", "/dashboard//evil": "/dashboard", "/dashboardx": "/dashboard",
		"/dashboard/\\evil": "/dashboard", "/v1/streams": "/dashboard", "/dashboard/streams?q=a": "/dashboard/streams?q=a", "/dashboard?span=day": "/dashboard?span=day",
		"/dashboard/sign-in": "/dashboard",
	} {
		if got := local(in); got != want {
			t.Errorf("local(%q) = %q, want %q", in, got, want)
		}
	}
}
