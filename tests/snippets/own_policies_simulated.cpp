// NEEDS tensorpull::testing
// SNIPPET
