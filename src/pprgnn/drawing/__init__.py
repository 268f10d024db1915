"""How figures are drawn, all of them: reports, the page of results, the demo."""
